"""Makes a detector of PP-DocLayoutV3's architecture with few random weights, and what transformers itself finds by it.

Run by a Python that has torch and transformers: `tiny_detector.py FOLDER`, then `tiny_detector.py FOLDER IMAGE...`,
which prints as JSON what transformers' own image processor makes of the model's answers.
"""

import json
import sys
from pathlib import Path
from typing import Any

#: All of them pass: random weights are sure of nothing.
THRESHOLD = 0.01
SIDE = 128


def make(folder: Path) -> None:
    import torch
    from transformers import HGNetV2Config, PPDocLayoutV3Config, PPDocLayoutV3ForObjectDetection

    torch.manual_seed(7)
    sizes = [8, 16, 24, 32]
    backbone = HGNetV2Config(
        embedding_size=8,
        depths=[1, 1, 1, 1],
        hidden_sizes=sizes,
        stem_channels=[3, 8, 8],
        stage_in_channels=[8, 8, 16, 24],
        stage_mid_channels=[8, 8, 8, 8],
        stage_out_channels=sizes,
        stage_num_blocks=[1, 1, 1, 1],
        stage_numb_of_layers=[1, 1, 1, 1],
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )
    config = PPDocLayoutV3Config(
        backbone_config=backbone,
        encoder_hidden_dim=16,
        encoder_in_channels=sizes[1:],
        encoder_ffn_dim=16,
        encoder_attention_heads=2,
        decoder_in_channels=[16, 16, 16],
        decoder_ffn_dim=16,
        decoder_layers=2,
        decoder_attention_heads=2,
        d_model=16,
        x4_feat_dim=sizes[0],
        mask_feature_channels=[8, 8],
        num_prototypes=4,
        num_queries=12,
        global_pointer_head_size=8,
        num_denoising=0,
        num_labels=25,
    )
    model = PPDocLayoutV3ForObjectDetection(config)
    for weights in model.parameters():
        if weights.dim() > 1:
            torch.nn.init.xavier_normal_(weights, gain=1.5)
    for head in (model.model.decoder.class_embed, model.model.enc_score_head):  # two labels that come close
        torch.nn.init.normal_(head.weight, std=0.3)
        head.weight.data[21] = head.weight.data[5]
        torch.nn.init.zeros_(head.bias)
        head.bias.data[21] = -0.05
    model.save_pretrained(folder)
    look = {
        "image_processor_type": "PPDocLayoutV3ImageProcessor",
        "size": {"height": SIDE, "width": SIDE},
        "resample": 3,
        "do_resize": True,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [0, 0, 0],
        "image_std": [1, 1, 1],
    }
    Path(folder, "preprocessor_config.json").write_text(json.dumps(look))


def found(folder: Path, images: list[str]) -> list[list[dict[str, Any]]]:
    import torch
    from PIL import Image
    from transformers import AutoImageProcessor, PPDocLayoutV3ForObjectDetection

    model = PPDocLayoutV3ForObjectDetection.from_pretrained(folder).eval()
    processor = AutoImageProcessor.from_pretrained(folder)
    pages = [Image.open(image).convert("RGB") for image in images]
    with torch.inference_mode():
        outputs = model(**processor(images=pages, return_tensors="pt"))
    # Polygons from masks are not asked for: they would need OpenCV.
    processor._extract_polygon_points_by_masks = lambda boxes, masks, ratio: [None] * len(boxes)
    processor.post_process_object_detection.__func__.__globals__["requires_backends"] = lambda *_: None
    sizes = torch.tensor([[1, 1]] * len(pages))
    return [
        {key: one[key].tolist() for key in ("scores", "labels", "boxes", "order_seq")}
        for one in processor.post_process_object_detection(outputs, threshold=THRESHOLD, target_sizes=sizes)
    ]


if __name__ == "__main__":
    where, *files = sys.argv[1:]
    if files:
        print(json.dumps(found(Path(where), files)))
    else:
        make(Path(where))
