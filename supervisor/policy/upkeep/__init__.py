"""Rules about what is kept and reported: accounts, cost, alerts, backups."""
