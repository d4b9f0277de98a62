#include "yoke/comm/messages/bench_messages.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/comm/messages/messengers.h"

namespace yoke::comm {
namespace {

constexpr int kServer = 1;
constexpr size_t kNoteBytes = 256;

// Exchanges one short text each way, before any messenger exists.
class Notes {
 public:
  Notes() {
    if (::pipe(down_) != 0 || ::pipe(up_) != 0) throw CommError("pipe: {}", describe_errno(errno));
  }
  ~Notes() {
    for (int fd : {down_[0], down_[1], up_[0], up_[1]}) ::close(fd);
  }
  Notes(const Notes&) = delete;
  Notes& operator=(const Notes&) = delete;

  void put(int from, const std::string& text) const {
    char note[kNoteBytes] = {};
    text.copy(note, kNoteBytes - 1);
    if (::write((from == 0 ? down_ : up_)[1], note, kNoteBytes) != kNoteBytes)
      throw CommError("pipe: {}", describe_errno(errno));
  }
  std::string get(int from) const {
    char note[kNoteBytes] = {};
    if (::read((from == 0 ? down_ : up_)[0], note, kNoteBytes) != kNoteBytes)
      throw CommError("the other process of the benchmark has ended");
    return note;
  }

 private:
  int down_[2];
  int up_[2];
};

// One of the two processes.
class Side {
 public:
  Side(const MessengerBench& bench, const Notes& notes, const net::JobTicket& ticket, int rank) {
    auto failure = std::make_shared<cluster::Failure>();
    if (bench.backend == "tcp") {
      acceptor_ = std::make_unique<net::Acceptor>(net::parse_address("127.0.0.1:0"), ticket);
      notes.put(rank, acceptor_->address().text());
      TcpMessengerSetup setup;
      setup.members.resize(2);
      for (int r = 0; r < 2; ++r)
        setup.members[static_cast<size_t>(r)] = {r, "this machine", "", 0,
                                                 r == rank ? acceptor_->address().text() : notes.get(r)};
      setup.acceptor = acceptor_.get();
      setup.ticket = ticket;
      messenger_ = make_tcp_messenger(common(setup, rank, failure));
    } else {
      ShmMessengerSetup setup;
      setup.put = [&notes](const std::string&, const std::string& text, Deadline) { notes.put(0, text); };
      setup.get = [&notes](const std::string&, Deadline) { return notes.get(0); };
      messenger_ = make_shm_messenger(common(setup, rank, failure));
    }
  }
  Messenger& messenger() { return *messenger_; }

 private:
  template <class Setup>
  static Setup& common(Setup& setup, int rank, const std::shared_ptr<cluster::Failure>& failure) {
    setup.rank = rank;
    setup.size = 2;
    setup.failure = failure;
    return setup;
  }

  std::unique_ptr<net::Acceptor> acceptor_;
  std::unique_ptr<Messenger> messenger_;
};

void serve(const MessengerBench& bench, const Notes& notes, const net::JobTicket& ticket) {
  Side side(bench, notes, ticket, kServer);
  std::vector<std::byte> place(bench.bytes);
  side.messenger().serve(
      [&](int, const Message&, size_t bytes) {
        return std::span<std::byte>(place.data(), std::min(bytes, place.size()));
      },
      [](int, const Message&, const Messenger::Answer& answer) { answer({}); });
  notes.put(kServer, "ready");
  notes.get(0);  // end of the measurement
}

// Each reply issues the next request, on the messenger's own thread.
class Load {
 public:
  Load(Messenger& messenger, const MessengerBench& bench)
      : messenger_(messenger), payload_(bench.bytes, std::byte{1}), end_(now_seconds() + bench.seconds) {}

  MessengerResult run() {
    double begin = now_seconds();
    const int window = payload_.size() <= 4096 ? 256 : 8;
    under_way_ = window;
    for (int i = 0; i < window; ++i) ask();
    std::unique_lock lock(mutex_);
    bool all = over_.wait_for(lock, std::chrono::seconds(60), [&] { return under_way_ == 0; });
    if (!error_.empty() || !all) throw CommError("bench messenger: {}", all ? error_ : "timed out");
    double seconds = now_seconds() - begin;
    double rate = static_cast<double>(replies_) / seconds;
    return {rate, rate * static_cast<double>(payload_.size())};
  }

 private:
  void ask() {
    Message request;
    request.payload = payload_;
    messenger_.ask_then(kServer, request, {}, Deadline::after(30),
                        [this](const Message&, const std::string& error) { came(error); });
  }
  void came(const std::string& error) {
    ++replies_;
    if (error.empty() && now_seconds() < end_) return ask();
    std::lock_guard lock(mutex_);
    if (!error.empty()) error_ = error;
    if (--under_way_ == 0) over_.notify_all();
  }

  Messenger& messenger_;
  std::vector<std::byte> payload_;
  double end_;
  int64_t replies_ = 0;  // used by the messenger's thread only
  std::mutex mutex_;
  std::condition_variable over_;
  int under_way_ = 0;
  std::string error_;
};

[[noreturn]] void be_server(const MessengerBench& bench, const Notes& notes, const net::JobTicket& ticket) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // never outlives the measurement
  int status = 0;
  try {
    serve(bench, notes, ticket);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench messenger: the server failed: {}\n", error.what());
    status = 1;
  }
  ::_exit(status);
}

}  // namespace

MessengerResult bench_messenger(const MessengerBench& bench) {
  net::JobTicket ticket;
  ticket.job_id = "bench-messenger";
  Notes notes;
  pid_t child = ::fork();
  if (child < 0) throw CommError("fork: {}", describe_errno(errno));
  if (child == 0) be_server(bench, notes, ticket);
  struct Reaper {
    pid_t child;
    ~Reaper() {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
  } reaper{child};
  Side side(bench, notes, ticket, 0);
  notes.get(kServer);
  MessengerResult result = Load(side.messenger(), bench).run();
  notes.put(0, "over");
  return result;
}

}  // namespace yoke::comm
