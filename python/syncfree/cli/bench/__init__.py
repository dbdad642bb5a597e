"""`syncfree bench`: suites, and the sweep over idle gaps."""
