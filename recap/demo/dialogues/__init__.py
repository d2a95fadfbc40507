"""What may be asked of each kind of picture, and how it is answered."""
