"""Every command and key of the interface: the table, the palette and the help screen."""
