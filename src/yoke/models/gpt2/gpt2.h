// GPT-2 (Radford et al. 2019) with Hugging Face's names and layouts, without the prefix `transformer.`, and
// with the output tied to the token embedding: 124,439,808 parameters in its smallest published size.
//
// Dropout is off by default, as in nanoGPT and llm.c; Hugging Face's configuration has 0.1. On CUDA, in
// training mode, the logits have a padded vocabulary (compute/vocabulary_head.h), which does not affect the
// loss; the loss consumes them (compute/language_loss.h).
#pragma once

#include "yoke/models/model.h"

namespace yoke::models {

// Uses size ("124m" "355m" "774m" "1558m"), or layers (12), heads (12) and width (768); vocabulary (50257),
// positions (1024), dropout (0).
Model make_gpt2(const ModelOptions& options);

}  // namespace yoke::models
