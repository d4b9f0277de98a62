#include "yoke/compute/search_room.h"

#include <atomic>

namespace yoke::compute {
namespace {

std::atomic<bool> may_be_bounded{true};

}  // namespace

void leave_searches_unbounded() {
  may_be_bounded = false;
}

bool searches_are_bounded() {
  return may_be_bounded;
}

}  // namespace yoke::compute
