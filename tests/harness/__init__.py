"""What the end-to-end tests are made of. One purpose to a module; conftest.py makes fixtures of them."""
