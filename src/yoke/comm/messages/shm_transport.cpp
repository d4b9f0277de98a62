// Transport over byte rings in shared memory, one per ordered pair of ranks; layout in shm_rings.h.
//
// `written` and `read` only grow; each is stored by one side with release and loaded by the other with
// acquire, so data is visible before its position. A sleeping rank is woken through the futex `inbox` of its
// desk; the pairs of fences below make sure that either the sleeper sees the data or the writer sees the
// sleeper.
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/fault.h"
#include "yoke/comm/messages/core.h"
#include "yoke/comm/messages/shm_rings.h"
#include "yoke/comm/shared/hand_out.h"

namespace yoke::comm {
namespace messages {
namespace {

shared::File make_memory(size_t bytes) {
  shared::File file(::memfd_create("yoke-messages", MFD_CLOEXEC));
  if (file.get() < 0 || ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0)
    throw CommError("{} bytes of shared memory: {}", bytes, describe_errno(errno));
  return file;
}

// Rank 0 creates the memory and passes it to the others, restarted ranks included.
class Memory {
 public:
  explicit Memory(const ShmMessengerSetup& setup) {
    Deadline deadline = Deadline::after(setup.timeout);
    if (setup.rank != 0) {
      files_ = shared::receive_files(setup.get(setup.key, deadline), setup.rank, 1, *setup.failure, deadline);
      return;
    }
    YOKE_CHECK(setup.life == 0, "rank 0 owns the shared memory and cannot rejoin");
    files_.push_back(make_memory(bytes_for(setup.size)));
    server_ = std::make_unique<shared::FileServer>();
    setup.put(setup.key, server_->ticket(), deadline);
    server_->serve(files_, setup.size, *setup.failure, deadline, setup.late);
    if (!setup.may_return) server_.reset();
  }
  int file() const { return files_.front().get(); }
  void serve_again(int size) {
    if (server_) server_->serve_again(files_, size);
  }

 private:
  std::vector<shared::File> files_;
  std::unique_ptr<shared::FileServer> server_;
};

class ShmTransport final : public Transport {
 public:
  explicit ShmTransport(const ShmMessengerSetup& setup)
      : rank_(setup.rank),
        size_(setup.size),
        late_(setup.late),
        life_(static_cast<uint32_t>(setup.life)),
        memory_(setup),
        mapping_(memory_.file(), bytes_before_data(setup.size)),
        peers_(static_cast<size_t>(setup.size)) {
    for (int peer = 0; peer < size_; ++peer) {
      incoming_.push_back(mirror(peer, rank_));
      outgoing_.push_back(mirror(rank_, peer));
    }
    life_ == 0 ? join(setup) : come_back();
  }
  ~ShmTransport() override {
    desk(rank_).left.store(1);
    for (int peer = 0; peer < size_; ++peer) notify(peer);
  }

  const std::string& name() const override { return name_; }
  bool one_at_a_time() const override { return false; }
  bool write(int peer, Outgoing& message) override;
  bool push(int) override { return true; }
  void close(int peer) override { of(peer).closed = true; }
  const WireHead* next(int peer) override;
  bool read(int peer, std::span<std::byte> into) override;
  size_t in_place_limit() const override { return kRingBytes / 2; }
  const std::byte* payload_in_place(int peer) override;
  void consume(int peer) override;
  void wait(const std::vector<bool>& has_unwritten, double seconds) override;
  void wake() override { notify(rank_); }
  void look_for_deaths() override;
  int returned(int peer) override;
  void reopen(int peer) override;
  bool is_absent(int peer) const override {
    return is_late(peer) && peers_[static_cast<size_t>(peer)].life == 0;
  }

 private:
  struct Peer {
    uint32_t life = 0;
    net::Descriptor process;
    std::string lost;
    std::atomic<bool> closed{false};
    bool has_head = false;
    WireHead head;
    size_t received = 0;
    size_t wanted = 1;  // bytes in the ring that are worth waking up for
  };

  void join(const ShmMessengerSetup& setup);
  void come_back();
  bool open_process(int peer);
  bool is_late(int rank) const { return !late_.empty() && late_[static_cast<size_t>(rank)]; }
  Peer& of(int peer) { return peers_[static_cast<size_t>(peer)]; }
  Desk& desk(int rank) const {
    return *reinterpret_cast<Desk*>(mapping_.base() + static_cast<size_t>(rank) * sizeof(Desk));
  }
  size_t index_of(int from, int to) const {
    return static_cast<size_t>(from) * static_cast<size_t>(size_) + static_cast<size_t>(to);
  }
  Ring& ring(int from, int to) const {
    return *reinterpret_cast<Ring*>(mapping_.base() + static_cast<size_t>(size_) * sizeof(Desk) +
                                    index_of(from, to) * sizeof(Ring));
  }
  Mirror mirror(int from, int to) const {
    return {memory_.file(), bytes_before_data(size_) + index_of(from, to) * kRingBytes};
  }
  void notify(int rank) const;
  size_t put(int to, const void* from, size_t bytes) const;  // from nullptr: padding
  size_t get(int from, void* to, size_t bytes) const;        // to nullptr: padding
  void release(int from, size_t bytes) const;
  void check(int peer) {
    if (of(peer).closed) throw CommError("rank {} is lost", peer);
  }
  // Whether the peer has noticed this life and reset the rings between us.
  bool connected(int peer) const { return ring(peer, rank_).life.load(std::memory_order_acquire) == life_; }

  const std::string name_ = "shm";
  const int rank_;
  const int size_;
  const std::vector<bool> late_;
  const uint32_t life_;
  Memory memory_;
  Mapping mapping_;
  std::vector<Peer> peers_;
  std::vector<Mirror> incoming_, outgoing_;  // by peer
};

void ShmTransport::join(const ShmMessengerSetup& setup) {
  Deadline deadline = Deadline::after(setup.timeout);
  desk(rank_).pid.store(::getpid());
  desk(rank_).joined.store(1);
  shared::wake_all(desk(rank_).joined);
  for (int peer = 0; peer < size_; ++peer) {
    if (is_late(peer)) {
      of(peer).closed = true;
      continue;
    }
    while (desk(peer).joined.load() == 0) {
      setup.failure->check("connecting messengers");
      if (deadline.passed())
        throw CommError("messenger of rank {}: rank {} has not connected after {:.1f} s", rank_, peer,
                        deadline.elapsed());
      shared::sleep_on(desk(peer).joined, 0, 0.02);
    }
    if (peer != rank_) open_process(peer);
  }
}

// Peers notice the new life and reset the rings between us (reopen()); until then nothing is read or written.
// Where neither was there at the start, both reset the rings before either writes.
void ShmTransport::come_back() {
  Desk& own = desk(rank_);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    if (desk(peer).life.load() > 0 && (is_late(peer) || is_late(rank_))) {
      reopen(peer);
      continue;
    }
    if (is_late(peer)) {
      of(peer).closed = true;
      continue;
    }
    of(peer).life = desk(peer).life.load();
    if (!open_process(peer)) of(peer).lost = fmt::format("rank {} has ended", peer);
    if (of(peer).life != 0) of(peer).lost = fmt::format("rank {} was restarted too", peer);
  }
  own.pid.store(::getpid());
  own.asleep.store(0);
  own.left.store(0);
  own.life.store(life_);
}

int ShmTransport::returned(int peer) {
  uint32_t life = desk(peer).life.load();
  return life != of(peer).life ? static_cast<int>(life) : 0;
}

void ShmTransport::reopen(int peer) {
  Peer& state = of(peer);
  state.life = desk(peer).life.load();
  state.lost.clear();
  state.process = net::Descriptor();
  if (!open_process(peer)) state.lost = fmt::format("rank {} has ended", peer);
  state.has_head = false;
  state.wanted = 1;
  for (Ring* one : {&ring(rank_, peer), &ring(peer, rank_)}) {
    one->written.store(0);
    one->read.store(0);
    one->writer_waits.store(0);
  }
  state.closed = false;
  ring(rank_, peer).life.store(state.life);
  notify(peer);
}

// Shared memory does not show that its other user has died; a pidfd does. Returns false if it has ended
// already.
bool ShmTransport::open_process(int peer) {
  int64_t pid = desk(peer).pid.load();
  if (pid == ::getpid()) return true;  // a thread of this process: dies with us
  of(peer).process = net::Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0)));
  if (!of(peer).process && errno != ESRCH)
    throw CommError("messenger of rank {}: cannot monitor process {} of rank {}: {}. Use tcp.", rank_, pid,
                    peer, describe_errno(errno));
  return static_cast<bool>(of(peer).process);
}

void ShmTransport::look_for_deaths() {
  memory_.serve_again(size_);
  for (int peer = 0; peer < size_; ++peer) {
    Peer& state = of(peer);
    if (peer == rank_ || !state.lost.empty()) continue;
    pollfd process{state.process.get(), POLLIN, 0};
    if (state.process && ::poll(&process, 1, 0) == 1)
      state.lost = fmt::format("rank {} (pid {}) has ended", peer, desk(peer).pid.load());
    if (desk(peer).left.load() != 0) state.lost = fmt::format("rank {} has left", peer);
  }
}

void ShmTransport::notify(int rank) const {
  Desk& other = desk(rank);
  // Pairs with wait(): either the sleeper sees what was written before this, or we see that it sleeps.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (rank != rank_ && other.asleep.load(std::memory_order_relaxed) == 0) return;
  other.inbox.fetch_add(1);
  shared::wake_all(other.inbox);
}

void ShmTransport::wait(const std::vector<bool>& has_unwritten, double seconds) {
  Desk& own = desk(rank_);
  uint32_t seen = own.inbox.load();
  own.asleep.store(1);
  bool something = false;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_ || of(peer).closed || !connected(peer)) continue;
    Ring& out = ring(rank_, peer);
    Ring& in = ring(peer, rank_);
    if (has_unwritten[static_cast<size_t>(peer)]) out.writer_waits.store(1);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    something |= in.written.load() - in.read.load(std::memory_order_relaxed) >= of(peer).wanted;
    something |=
        has_unwritten[static_cast<size_t>(peer)] && out.written.load() - out.read.load() < kRingBytes / 2;
  }
  if (!something) shared::sleep_on(own.inbox, seen, seconds);
  own.asleep.store(0);
}

size_t ShmTransport::put(int to, const void* from, size_t bytes) const {
  Ring& out = ring(rank_, to);
  uint64_t at = out.written.load(std::memory_order_relaxed);
  size_t room = kRingBytes - static_cast<size_t>(at - out.read.load(std::memory_order_acquire));
  size_t take = std::min(bytes, room);
  if (from != nullptr) std::memcpy(outgoing_[static_cast<size_t>(to)].at(at), from, take);
  out.written.store(at + take, std::memory_order_release);
  return take;
}

size_t ShmTransport::get(int from, void* to, size_t bytes) const {
  Ring& in = ring(from, rank_);
  uint64_t at = in.read.load(std::memory_order_relaxed);
  size_t there = static_cast<size_t>(in.written.load(std::memory_order_acquire) - at);
  size_t take = std::min(bytes, there);
  if (take == 0) return 0;
  if (to != nullptr) std::memcpy(to, incoming_[static_cast<size_t>(from)].at(at), take);
  release(from, take);
  return take;
}

void ShmTransport::release(int from, size_t bytes) const {
  Ring& in = ring(from, rank_);
  in.read.store(in.read.load(std::memory_order_relaxed) + bytes, std::memory_order_release);
  // Pairs with wait(): either the writer sees the room, or we see that it waits for some.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (in.writer_waits.load(std::memory_order_relaxed) != 0 && in.writer_waits.exchange(0) != 0) notify(from);
}

bool ShmTransport::write(int peer, Outgoing& message) {
  check(peer);
  if (!connected(peer)) return false;
  Ring& out = ring(rank_, peer);
  if (!message.started()) {
    fault::at(fault::Point::kShmWrite);
    uint64_t used = out.written.load(std::memory_order_relaxed) - out.read.load(std::memory_order_acquire);
    if (kRingBytes - used < kHeadRoom) return false;
    // Written at once: a writer that dies here leaves a complete head or none.
    std::byte head[kHeadRoom] = {};
    std::memcpy(head, &message.head, sizeof(WireHead));
    put(peer, head, kHeadRoom);
    message.state = 1;
  }
  size_t size = message.payload.size();
  while (message.offset < padded(size)) {
    bool data = message.offset < size;
    size_t piece = data ? std::min(kPiece, size - message.offset) : padded(size) - message.offset;
    size_t done = put(peer, data ? message.payload.data() + message.offset : nullptr, piece);
    message.offset += done;
    notify(peer);
    if (done == 0) return false;
  }
  notify(peer);
  return true;
}

const WireHead* ShmTransport::next(int peer) {
  check(peer);
  Peer& state = of(peer);
  if (state.has_head) return &state.head;
  if (!connected(peer)) {
    if (!state.lost.empty()) throw CommError("{}", state.lost);
    return nullptr;
  }
  Ring& in = ring(peer, rank_);
  uint64_t there = in.written.load(std::memory_order_acquire) - in.read.load(std::memory_order_relaxed);
  if (there < kHeadRoom) {
    // Also in the middle of a head: the rest will never be written.
    if (!state.lost.empty()) throw CommError("{}", state.lost);
    return nullptr;
  }
  if (there > kRingBytes)
    throw CommError("rank {} wrote {} bytes into a ring of {}", peer, there, kRingBytes);
  get(peer, &state.head, sizeof(WireHead));
  get(peer, nullptr, kHeadRoom - sizeof(WireHead));
  state.has_head = true;
  state.received = 0;
  return &state.head;
}

bool ShmTransport::read(int peer, std::span<std::byte> into) {
  check(peer);
  Peer& state = of(peer);
  while (state.received < padded(into.size())) {
    bool data = state.received < into.size();
    size_t piece =
        data ? std::min(kPiece, into.size() - state.received) : padded(into.size()) - state.received;
    size_t got = get(peer, data ? into.data() + state.received : nullptr, piece);
    if (got == 0 && !state.lost.empty()) throw CommError("{}", state.lost);
    if (got == 0) return false;
    state.received += got;
  }
  state.has_head = false;
  return true;
}

const std::byte* ShmTransport::payload_in_place(int peer) {
  check(peer);
  Peer& state = of(peer);
  Ring& in = ring(peer, rank_);
  uint64_t at = in.read.load(std::memory_order_relaxed);
  if (in.written.load(std::memory_order_acquire) - at < padded(state.head.bytes)) {
    if (!state.lost.empty()) throw CommError("{}", state.lost);
    state.wanted = padded(state.head.bytes);
    return nullptr;
  }
  state.wanted = 1;
  return incoming_[static_cast<size_t>(peer)].at(at);
}

void ShmTransport::consume(int peer) {
  Peer& state = of(peer);
  if (!state.has_head) return;  // the peer was reopened meanwhile
  state.has_head = false;
  release(peer, padded(state.head.bytes));
}

}  // namespace
}  // namespace messages

std::unique_ptr<Messenger> make_shm_messenger(const ShmMessengerSetup& setup) {
  YOKE_CHECK(setup.failure && setup.put && setup.get,
             "a messenger over shared memory needs failure, put and get");
  return std::make_unique<messages::MessengerCore>(setup, std::make_unique<messages::ShmTransport>(setup));
}

}  // namespace yoke::comm
