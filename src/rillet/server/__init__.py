"""The RESP server: sockets, sessions, configuration file, the event loop."""
