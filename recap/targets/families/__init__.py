"""What each model family adds to the target they share, one file each."""
