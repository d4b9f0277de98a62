// For tests and fuzzing: a messenger without a network, whose peer is whoever holds it, and one that resends.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/comm/messenger.h"
#include "yoke/ps/messages.h"

namespace yoke::ps {

class ScriptedMessenger final : public comm::Messenger {
 public:
  ScriptedMessenger(int rank, int size) : rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::string& backend() const override { return backend_; }
  bool is_lost(int peer) const override { return fallen_.contains(peer); }
  void serve(Place place, Handler handler) override {
    place_ = std::move(place);
    handler_ = std::move(handler);
  }
  void on_peer_lost(PeerLost callback) override { lost_ = std::move(callback); }
  void on_peer_back(PeerBack callback) override { back_ = std::move(callback); }
  std::future<comm::Message> ask(int peer, const comm::Message& request, std::span<std::byte> into,
                                 Deadline deadline) override {
    std::promise<comm::Message> promise;
    ask_then(peer, request, into, deadline, [&](const comm::Message& reply, const std::string& error) {
      error.empty() ? promise.set_value(reply)
                    : promise.set_exception(std::make_exception_ptr(CommError("{}", error)));
    });
    return promise.get_future();
  }
  // What `answer_to` gives, at once.
  void ask_then(int peer, const comm::Message& request, std::span<std::byte> into, Deadline,
                Done done) override {
    if (silent.contains(peer)) return done({}, "no reply");
    comm::Message reply = answer_to ? answer_to(peer, request, into) : comm::Message();
    if (!answer_to && request.kind == kCopy) reply = message_with(kCopy, CopyReply{.complete = 1});
    if (reply.payload.size() > into.size()) return done({}, "the reply is too large");
    done(reply, "");
  }
  void tell(int, const comm::Message& message, Deadline) override { told.push_back(message.kind); }
  void run_soon(std::function<void()> task) override { task(); }
  void run_later(double seconds, std::function<void()> task) override {
    later.emplace_back(seconds, std::move(task));
  }

  // A request comes in. What it was refused with; empty: it was not.
  std::string deliver(int from, const comm::Message& request) {
    try {
      if (place_ && !request.payload.empty()) place_(from, request, request.payload.size());
      handler_(from, request, [this](const comm::Reply& reply) {
        ++answers;
        if (reply.sent) reply.sent();
      });
      return "";
    } catch (const std::exception& error) {
      return error.what();
    }
  }
  void lose(int peer) {
    fallen_.insert(peer);
    lost_(peer, "it fell");
  }
  void bring_back(int peer, int life) { back_(peer, life); }

  std::function<comm::Message(int peer, const comm::Message& request, std::span<std::byte> into)> answer_to;
  std::set<int> silent;                                         // peers that do not answer in time
  std::vector<std::pair<double, std::function<void()>>> later;  // what is to run, after so many seconds
  std::vector<uint16_t> told;
  std::atomic<int> answers{0};

 private:
  int rank_;
  int size_;
  std::string backend_ = "scripted";
  Place place_;
  Handler handler_;
  PeerLost lost_;
  PeerBack back_;
  std::set<int> fallen_;
};

// Passes on until cut() is called: then each end of the link has lost the other. Both ends need one.
class CuttableMessenger final : public comm::Messenger {
 public:
  explicit CuttableMessenger(comm::Messenger& under) : under_(under) {}
  int rank() const override { return under_.rank(); }
  int size() const override { return under_.size(); }
  const std::string& backend() const override { return under_.backend(); }
  bool is_lost(int peer) const override { return cut_ == peer || under_.is_lost(peer); }
  void serve(Place place, Handler handler) override {
    under_.serve(std::move(place),
                 [this, handler = std::move(handler)](int from, const comm::Message& request, Answer answer) {
                   if (from != cut_) handler(from, request, std::move(answer));
                 });
  }
  void on_peer_lost(PeerLost callback) override {
    lost_ = callback;
    under_.on_peer_lost([this, callback](int peer, const std::string& why) {
      if (peer != cut_) callback(peer, why);
    });
  }
  void on_peer_back(PeerBack callback) override { under_.on_peer_back(std::move(callback)); }
  std::future<comm::Message> ask(int peer, const comm::Message& request, std::span<std::byte> into,
                                 Deadline deadline) override {
    return under_.ask(peer, request, into, deadline);
  }
  void ask_then(int peer, const comm::Message& request, std::span<std::byte> into, Deadline deadline,
                Done done) override {
    if (peer == cut_) return done({}, "the link was cut");
    under_.ask_then(peer, request, into, deadline,
                    [this, peer, done](const comm::Message& reply, const std::string& error) {
                      if (peer == cut_) return done({}, "the link was cut");
                      done(reply, error);
                    });
  }
  void tell(int peer, const comm::Message& message, Deadline deadline) override {
    if (peer == cut_) throw CommError("the link was cut");
    under_.tell(peer, message, deadline);
  }
  void run_soon(std::function<void()> task) override { under_.run_soon(std::move(task)); }
  void run_later(double seconds, std::function<void()> task) override {
    under_.run_later(seconds, std::move(task));
  }
  void cut(int peer) {
    under_.run_soon([this, peer] {
      cut_ = peer;
      lost_(peer, "the link was cut");
    });
  }

 private:
  comm::Messenger& under_;
  PeerLost lost_;
  std::atomic<int> cut_{-1};
};

// Passes on, but sends every third request of the given kinds twice: as if its first answer had been lost on
// the way.
class ResendingMessenger final : public comm::Messenger {
 public:
  ResendingMessenger(comm::Messenger& under, std::set<uint16_t> kinds)
      : under_(under), kinds_(std::move(kinds)) {}
  int rank() const override { return under_.rank(); }
  int size() const override { return under_.size(); }
  const std::string& backend() const override { return under_.backend(); }
  bool is_lost(int peer) const override { return under_.is_lost(peer); }
  void serve(Place place, Handler handler) override { under_.serve(std::move(place), std::move(handler)); }
  void on_peer_lost(PeerLost callback) override { under_.on_peer_lost(std::move(callback)); }
  void on_peer_back(PeerBack callback) override { under_.on_peer_back(std::move(callback)); }
  std::future<comm::Message> ask(int peer, const comm::Message& request, std::span<std::byte> into,
                                 Deadline deadline) override {
    return under_.ask(peer, request, into, deadline);
  }
  void ask_then(int peer, const comm::Message& request, std::span<std::byte> into, Deadline deadline,
                Done done) override {
    if (!kinds_.contains(request.kind) || next_++ % 3 != 0)
      return under_.ask_then(peer, request, into, deadline, std::move(done));
    ++resends;
    under_.ask_then(peer, request, into, deadline,
                    [this, peer, request, into, deadline, done](const comm::Message&, const std::string&) {
                      under_.ask_then(peer, request, into, deadline, done);
                    });
  }
  void tell(int peer, const comm::Message& message, Deadline deadline) override {
    under_.tell(peer, message, deadline);
  }
  void run_soon(std::function<void()> task) override { under_.run_soon(std::move(task)); }
  void run_later(double seconds, std::function<void()> task) override {
    under_.run_later(seconds, std::move(task));
  }

  std::atomic<int64_t> resends{0};

 private:
  comm::Messenger& under_;
  const std::set<uint16_t> kinds_;
  std::atomic<int64_t> next_{0};
};

}  // namespace yoke::ps
