"""Parameter-efficient tuning of frozen Vision Transformers with token reduction (FPET, CVPR 2025)."""
