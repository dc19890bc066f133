"""Seeds that once found something, each with what it found: they are told again with every commit.

A line is added when a seed finds a real fault (of the core, the loop or the simulator itself), together with its repair.
`only` may shorten a story to the misfortunes that it takes; without it, the night is told as it was found.
"""

KNOWN = (
    # box, seed, programs, what it found
    ("rough", 133, 4, "a deadline closer than the clock's last digit: time has to pass in every wait"),
    ("usual", 2, 2, "a rule that was new: after an absence of the daemon nobody is killed for up to 5s, whatever was due"),
    ("reboots", 1, 1, "from the 201st reboot on, every line of reboot_alerts.log said that it was number 200"),
)
