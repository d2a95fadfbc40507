"""How the demo models were made: a small real Qwen2.5-VL, a small real LLaVA-NeXT, and their drawn world.

Nothing here is needed to decode. The package makes `assets/demo_model`, `assets/demo_llava` and
`assets/examples`.
"""
