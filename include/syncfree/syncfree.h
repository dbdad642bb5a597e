// Everything of syncfree::core.
#pragma once

#include "syncfree/accuracy.h"
#include "syncfree/event_timer.h"
#include "syncfree/idle_gap.h"
#include "syncfree/image_quality.h"
#include "syncfree/ms_ssim.h"
#include "syncfree/psnr.h"
#include "syncfree/ssim.h"
