"""Every command and key of the interface: the table, the palette, the help screen, remapping."""
