#!/usr/bin/env bash
# The onstart script of vast.ai (at most 4,048 characters), which runs it at each start. Put your repository's address in place of
# REPOSITORY. The disk of the container survives a stop, but not a destroy: with -e EXTRALIFE_OFFSITE_REPOSITORY=... and
# -e EXTRALIFE_OFFSITE_PASSWORD=... in the template, the next instance goes on from its copies (docs/offsite.md).
export EXTRALIFE_STATE=/workspace EXTRALIFE_OWN_LAYER=yes
source=$EXTRALIFE_STATE/extralife/source
fetch() { rm -rf "$source" "$source.new" && git clone -q REPOSITORY "$source.new" && mv "$source.new" "$source"; }
{
    until [[ -e $source/deploy/container/entrypoint ]] || fetch; do sleep 30; done
    until "$source/deploy/container/entrypoint"; do sleep 30; done
} </dev/null >/proc/1/fd/1 2>&1 &
