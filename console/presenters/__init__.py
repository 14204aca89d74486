"""How values look to people: words, icons, colour families, formatted numbers. Pure; knows neither HTTP nor the database.

Every word, icon and colour of a state is decided here once; badge, help page, legend and tests read the same tables.
"""
