"""The heartbeat: while supervision works, another machine gets pings, and alarms when they stop."""
