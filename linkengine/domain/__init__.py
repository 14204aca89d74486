"""Pure decisions: no clock, no network, no file, no framework. Values, tables and rules over them."""
