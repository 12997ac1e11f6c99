"""The scheduler's HTTP interface: REST, streams of events, and the page. It is imported only where it is asked for."""
