#include "yoke/optim/adamw_on_cuda.h"

namespace yoke::optim {

bool update_on_cuda(const ParameterList&, const AdamWState&, const OptimizerOptions&) {
  return false;
}

}  // namespace yoke::optim
