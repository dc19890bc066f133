#!/bin/sh
# Plays Slurm's commands from recordings: the directory RECORDED beside this file's name says of which version.
# BEHAVE: how it misbehaves (a file whose first word is hang, down, garbage, cut, late, silent or killed). Each call is a line in CALLS.
here=$(dirname "$0")
command=$(basename "$0")
recorded=$(cat "$here/RECORDED")
behave=$(cat "$here/BEHAVE" 2>/dev/null)
echo "$command $*" | tr '\036\037' '  ' >>"$here/CALLS"
case $behave in
    hang) exec sleep 600 ;;
    down)
        echo "$command: error: slurm_receive_msg: Unable to contact slurm controller (connect failure)" >&2
        exit 1
        ;;
    garbage)
        printf 'Welcome to the cluster!\nYour quota is \377\n'
        exit 0
        ;;
    cut)
        case "$*" in *-O*) head -c 700 "$recorded/squeue.txt" && exit 0 ;; esac
        ;;
    silent) exit 1 ;;
    killed) kill -9 $$ ;;
    late) # the controller took the job, and its answer was lost
        [ "$command" != sbatch ] || { cat >"$here/SUBMITTED"; exec sleep 600; }
        ;;
esac
case "$command $*" in
    *--version*) cat "$recorded/version.txt" ;;
    squeue*) cat "$recorded/squeue.txt" ;;
    sinfo*-N*) cat "$recorded/nodes.txt" ;;
    sinfo*) cat "$recorded/partitions.txt" ;;
    sbatch*nope*)
        echo "sbatch: error: invalid partition specified: nope" >&2
        echo "sbatch: error: Batch job submission failed: Invalid partition name specified" >&2
        exit 1
        ;;
    sbatch*--foo*)
        printf "sbatch: unrecognized option '--foo'\nTry \"sbatch --help\" for more information\n" >&2
        exit 255
        ;;
    sbatch*)
        cat >"$here/SUBMITTED"
        echo 4711
        ;;
    sacct*)
        echo "Slurm accounting storage is disabled" >&2
        exit 1
        ;;
    scontrol*9999*)
        echo "Invalid job id specified for job 9999" >&2
        exit 1
        ;;
esac
