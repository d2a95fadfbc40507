"""What serves many people over one model. Knows no Gradio."""
