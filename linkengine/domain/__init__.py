"""Pure decisions: no clock, no network, no file, no framework. Everything here is a value, a table or a rule over them."""
