#!/bin/sh
# A loop over seeds as one program: one training of three parts, whose steps go on counting.
# Seeds that train side by side are programs of their own: seeds = [1, 2, 3] in the configuration.
for seed in 1 2 3; do
    python "$(dirname "$0")/seeds.py" "$seed" || exit $?
done
