// The part of Server that does not take a broken link for a dead server.
//
// If the network between two servers fails, each has lost the other. If both went on, both would serve the
// homes of both. So a server that has lost another asks the first worker, without which the job cannot
// continue either. If that worker has lost it, too, it is lost. If not, it may be alive: the asker waits
// until it is lost, which is soon if it has died, or until it complains of the asker in turn. Then both are
// alive, and the one with the higher number ends. Until then nothing is taken over, and changes that the
// other server should have are not safe, so nobody is told that they were made.
#include "yoke/base/error.h"
#include "yoke/ps/flight.h"
#include "yoke/ps/server.h"

namespace yoke::ps {
namespace {

using comm::Message;

constexpr int kArbiter = 0;
constexpr double kAskAgain = 0.05;  // seconds

}  // namespace

// The connection to this server has ended.
void Server::suspect(int server, const std::string& why) {
  if (succession_.is_lost(server)) return;  // it has left, or never joined
  if (options_.replicas == 0 || left_[kArbiter] || ended_) return server_gone(server, Departure::kLost, why);
  ask_whether_gone(server, why, Deadline::after(options_.timeout));
}

void Server::ask_whether_gone(int server, const std::string& why, Deadline deadline) {
  auto done = [this, server, why, deadline](const Message& reply, const std::string& error) {
    if (succession_.is_lost(server)) return;
    const bool cut_off = !error.empty() && messenger_.is_lost(kArbiter);
    if (cut_off && !left_[kArbiter])
      return end_cut_off(fmt::format("{} and the first worker are", name_of(server)));
    // A program of its own may not answer.
    const bool answers = error.empty() && reply.head_bytes == sizeof(GoneReply);
    const int64_t verdict = answers ? reply.get_head<GoneReply>().verdict : GoneReply::kGone;
    if (verdict == GoneReply::kEnd) return end_cut_off(name_of(server) + ", which others can reach, is");
    if (verdict != GoneReply::kWait) return server_gone(server, Departure::kLost, why);
    if (deadline.passed())
      return fail(fmt::format("{} cannot reach {}, but a worker can", name_of(own_index()), name_of(server)));
    messenger_.run_later(kAskAgain, [this, server, why, deadline] {
      if (!succession_.is_lost(server)) ask_whether_gone(server, why, deadline);
    });
  };
  messenger_.ask_then(kArbiter, message_with(kAskGone, AskGoneHead{server}), {}, deadline, done);
}

// The others do without this server, like without one that is lost.
void Server::end_cut_off(const std::string& whom) {
  say(fmt::format("{} ends: {} out of its reach, so others may serve its parameters", name_of(own_index()),
                  whom));
  leaving_ = true;
  std::lock_guard lock(mutex_);
  has_left_ = is_cut_off_ = true;
  changed_.notify_all();
}

}  // namespace yoke::ps
