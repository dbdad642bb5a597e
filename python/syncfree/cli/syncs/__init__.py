"""`syncfree syncs`: runs a program and lists the lines that make the host wait."""
