"""The commands of servers and sites."""
