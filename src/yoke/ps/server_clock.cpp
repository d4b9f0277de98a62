#include "yoke/ps/server_clock.h"

namespace yoke::ps {

void ServerClock::pass(double now) {
  if (runs_) {
    double& part = handles_ ? times_.apply : payloads_ > 0 ? times_.receive : times_.wait;
    part += now - since_;
  }
  since_ = now;
}

void ServerClock::start(double now) {
  pass(now);
  runs_ = !stopped_;
}

void ServerClock::stop(double now) {
  pass(now);
  runs_ = false;
  stopped_ = true;
}

void ServerClock::arrives(int peer, double now) {
  pass(now);
  auto place = static_cast<size_t>(peer);
  if (!arriving_[place]) ++payloads_;
  arriving_[place] = true;
}

void ServerClock::has_arrived(int peer) {
  auto place = static_cast<size_t>(peer);
  if (arriving_[place]) --payloads_;
  arriving_[place] = false;
}

void ServerClock::handling(int peer, double now) {
  pass(now);
  has_arrived(peer);
  handles_ = true;
}

void ServerClock::handled(double now) {
  pass(now);
  handles_ = false;
}

void ServerClock::lost(int peer, double now) {
  pass(now);
  has_arrived(peer);
}

ServerClock::Times ServerClock::times(double now) {
  pass(now);
  return times_;
}

}  // namespace yoke::ps
