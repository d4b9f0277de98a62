// yoke lab downpour: the methods of DistBelief on the same model: who reaches an accuracy first.
#pragma once

#include "cli/lab.h"

namespace yoke::cli {

void run_lab_downpour(Lab& lab);

}  // namespace yoke::cli
