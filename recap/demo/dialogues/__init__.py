"""Questions about each kind of picture with their answers, and dialogues composed of them."""
