"""Other tools' descriptions of machines: a module for each format, and the choice among them."""
