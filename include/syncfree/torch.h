// Everything of syncfree::torch: the metrics on at::Tensor.
#pragma once

#include "syncfree/torch/accuracy.h"
#include "syncfree/torch/event_timer.h"
#include "syncfree/torch/idle_gap.h"
#include "syncfree/torch/image_quality.h"
#include "syncfree/torch/ms_ssim.h"
#include "syncfree/torch/psnr.h"
#include "syncfree/torch/ssim.h"
