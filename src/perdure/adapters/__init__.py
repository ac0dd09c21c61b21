"""Work elsewhere, for real systems: what hands it over, looks after it and gives it up, over `task.external`.

Nothing here knows how tasks wait; that is the verb's. Import the adapter that you need by its module: what one of them
wants installed is no business of the others.
"""
