"""The embedded demo model: a small real Qwen2.5-VL and the drawn world that it is trained on.

Nothing here is needed to decode: the package makes `assets/demo_model/` and `assets/examples/`.
"""
