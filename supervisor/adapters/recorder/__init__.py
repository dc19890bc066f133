"""The recorder: samples of the running system, in a separate file whose resolution falls with age.

Losing it loses only curves.
"""
