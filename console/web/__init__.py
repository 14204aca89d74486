"""What all pages share: requests, forms, lists, URLs, the display of numbers, states and errors."""
