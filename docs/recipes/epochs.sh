#!/bin/sh
# EPOCHS epochs; goes on after the last one that is complete.
set -eu
epochs=${EPOCHS:-100}
epoch=$(cat epoch 2>/dev/null || echo 0)

stop=
trap 'stop=1' TERM

systemd-notify --status="loading"             # loading may take as long as a start may
systemd-notify --ready --status="training"    # from here on it has to get on
while [ "$epoch" -lt "$epochs" ] && [ -z "$stop" ]; do
    sleep "${EPOCH_S:-1}"                     # the training of one epoch
    epoch=$((epoch + 1))
    echo "$epoch" >epoch.tmp && mv epoch.tmp epoch
    systemd-notify WATCHDOG=1 "X_EXTRALIFE_STEPS=$epoch" "X_EXTRALIFE_CHECKPOINT=$epoch"
done
systemd-notify STOPPING=1 --status="leaving"
[ "$epoch" -ge "$epochs" ] || exit 75         # not done: asked to leave
