"""Rules about records and reports: accounts, cost, alerts, backups."""
