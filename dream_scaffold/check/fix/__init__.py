"""`--fix`: what findings propose, carried out on text, and written whole or not at all."""
