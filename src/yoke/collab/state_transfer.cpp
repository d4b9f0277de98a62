// A request is a kMessage frame with the epoch in `context`; the answer one kAnswer frame with the epoch in
// `context` and the number of bytes in `fingerprint`, then kData frames of at most kPieceBytes.
#include "yoke/collab/state_transfer.h"

#include <chrono>
#include <span>

#include "yoke/base/error.h"
#include "yoke/base/log.h"

namespace yoke::collab {
namespace {

constexpr const char* kStatePurpose = "collab.state";
constexpr size_t kPieceBytes = 1 << 20;
constexpr double kLookEvery = 0.05;

}  // namespace

StateServer::StateServer(net::Acceptor& acceptor, double timeout)
    : acceptor_(acceptor), timeout_(timeout), thread_([this] { serve(); }) {}

StateServer::~StateServer() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  thread_.join();
}

bool StateServer::wanted(int64_t epoch) const {
  std::lock_guard lock(mutex_);
  return waiting_ > 0 && (state_ == nullptr || state_->epoch < epoch);
}

void StateServer::offer(StatePointer state) {
  std::lock_guard lock(mutex_);
  state_ = std::move(state);
}

void StateServer::serve() {
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      if (stop_) return;
    }
    try {
      auto connection = acceptor_.take_any(kStatePurpose, Deadline::after(kLookEvery));
      if (connection != nullptr) give(*connection);
    } catch (const Error& error) {
      log::info("collab: sending the state failed: {}", error.what());
    }
  }
}

void StateServer::give(net::Connection& connection) {
  net::FrameHeader request;
  connection.receive_frame(request, Deadline::after(timeout_));
  const auto epoch = static_cast<int64_t>(request.context);
  StatePointer state;
  {
    std::lock_guard lock(mutex_);
    ++waiting_;
  }
  for (Deadline deadline = Deadline::after(timeout_); !deadline.passed();) {
    {
      std::lock_guard lock(mutex_);
      if (stop_) break;
      if (state_ != nullptr && state_->epoch >= epoch) {
        state = state_;
        break;
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  {
    std::lock_guard lock(mutex_);
    --waiting_;
  }
  if (state == nullptr) throw CommError("no state of step {} within {:.0f} s", epoch, timeout_);
  connection.post({.type = net::FrameType::kAnswer,
                   .fingerprint = state->bytes.size(),
                   .context = static_cast<uint64_t>(state->epoch)},
                  {});
  for (size_t first = 0; first < state->bytes.size(); first += kPieceBytes) {
    const size_t count = std::min(kPieceBytes, state->bytes.size() - first);
    connection.post({.type = net::FrameType::kData, .context = first},
                    std::span(state->bytes).subspan(first, count));
    connection.flush_all(Deadline::after(timeout_));  // per piece: a slow link is no stalled one
  }
  connection.flush_all(Deadline::after(timeout_));
}

SharedState fetch_state(const std::string& address, const net::JobTicket& ticket, int peer, int64_t epoch,
                        int64_t bytes, double timeout) try {
  auto connection = net::dial(net::parse_address(address), ticket, {.rank = peer, .purpose = kStatePurpose},
                              Deadline::after(timeout / 3));  // another donor may be faster to reach
  connection->post_copy({.type = net::FrameType::kMessage, .context = static_cast<uint64_t>(epoch)}, {});
  connection->flush_all(Deadline::after(timeout));
  net::FrameHeader answer;
  connection->receive_frame(answer, Deadline::after(2 * timeout));
  if (answer.type != net::FrameType::kAnswer || answer.fingerprint != static_cast<uint64_t>(bytes))
    throw CommError("offers {} bytes instead of {}", answer.fingerprint, bytes);
  SharedState state{static_cast<int64_t>(answer.context), {}};
  state.bytes.reserve(static_cast<size_t>(bytes));
  while (state.bytes.size() < static_cast<size_t>(bytes)) {
    net::FrameHeader piece;
    std::vector<std::byte> data = connection->receive_frame(piece, Deadline::after(timeout));
    if (piece.type != net::FrameType::kData || data.empty() ||
        state.bytes.size() + data.size() > static_cast<size_t>(bytes))
      throw CommError("sent an unexpected frame");
    state.bytes.insert(state.bytes.end(), data.begin(), data.end());
  }
  return state;
} catch (const Error& error) {
  throw CommError("collab: the state from the peer at {} failed: {}", address, error.what());
}

}  // namespace yoke::collab
