// The exchange of a group: one thread, all links at once.
//
// A kept connection begins with a kMessage frame with the token in `context`. Otherwise frames are kData with
// the kind in `channel` and the chunk in `context`. A sender posts all its chunks at the start; the reducer
// returns chunk k when everybody gave it, is lost, or is late. A result overwrites the values it was computed
// from: by then they have been sent.
#include "yoke/collab/group.h"

#include <poll.h>

#include <algorithm>
#include <future>

#include "yoke/base/error.h"
#include "yoke/collab/group_part.h"

namespace yoke::collab {
namespace {

constexpr uint16_t kContribution = 1, kMean = 2;
constexpr double kReducerPatience = 3;  // times the stall: a reducer itself waits for others
constexpr int kPollMs = 20;
constexpr int kConnectingPollMs = 1;
constexpr int64_t kChunks = 64;                                       // of a small vector
constexpr int64_t kLeastChunk = 16 << 10, kLargestChunk = 256 << 10;  // bytes
constexpr const char* kGroupPurpose = "collab.group";

size_t chunks_of(int64_t count, size_t chunk) {
  return (static_cast<size_t>(count) + chunk - 1) / chunk;
}

// A mean returns when its whole chunk has arrived: of a slow link, one chunk is what all wait for in the end.
size_t chunk_elements(const GroupPlan& plan, const GroupOptions& options) {
  const int64_t bytes =
      options.chunk_bytes > 0
          ? options.chunk_bytes
          : std::clamp(plan.elements * 4 / kChunks, kLeastChunk, kLargestChunk) & ~int64_t{3};
  return static_cast<size_t>(bytes) / sizeof(float);
}

struct GroupLink {
  size_t member = 0;
  std::future<std::unique_ptr<net::Connection>> dialing;  // to a reducer
  std::unique_ptr<net::Connection> connection;
  std::unique_ptr<net::Connection> kept;  // of a sender that may use it again
  bool reused = false;
  size_t received = 0, posted = 0;
  double progress = 0;  // when something last arrived
  int64_t bytes = 0;    // that arrived
  bool done = false;
};

class GroupRound {
 public:
  GroupRound(const GroupPlan& plan, std::span<float> values, net::Acceptor* acceptor,
             const net::JobTicket& ticket, const GroupOptions& options)
      : plan_(plan),
        values_(values),
        acceptor_(acceptor),
        ticket_(ticket),
        options_(options),
        chunk_(chunk_elements(plan, options)),
        deadline_(Deadline::after(plan.seconds)),
        part_(plan, part_of(plan.self), chunk_, options.memory != nullptr ? *options.memory : own_memory_) {
    for (size_t i = 0; i < plan_.members.size(); ++i) {
      if (i == plan_.self) continue;
      if (plan_.sums(i)) reach(i);
      if (!plan_.sums(plan_.self)) continue;
      senders_.push_back({.member = i, .progress = now_seconds()});
      if (options_.links != nullptr)
        senders_.back().kept = options_.links->take_accepted(plan_.members[i].peer);
    }
  }

  // Dials that are in flight end on their own within the stall.
  ~GroupRound() {
    for (GroupLink& link : reducers_)
      if (link.dialing.valid()) link.dialing.wait();
  }

  GroupResult run() {
    while (!finished() && !deadline_.passed()) {
      connect();
      for (GroupLink& link : reducers_) exchange(link, [&] { receive_means(link); });
      for (GroupLink& link : senders_) exchange(link, [&] { receive_contributions(link); });
      for (size_t member : part_.combine_ready()) lose_sender(member, "sent values that are not finite");
      send_means();
      find_stalled();
      wait();
    }
    for (GroupLink& link : reducers_)
      if (!link.done) lose(link, "was not done in time");
    std::span<const float> own = part_.whole_result();
    if (part_.combined() == part_.chunks())
      std::copy(own.begin(), own.end(), part_of(plan_.self).begin());
    else
      result_.complete = false;
    if (options_.links != nullptr && result_.complete) keep_links();
    part_.judge(result_);
    for (const auto* links : {&reducers_, &senders_})
      for (const GroupLink& link : *links)
        if (link.bytes > 0)
          result_.received.push_back({plan_.members[link.member].peer, link.bytes, link.progress - begun_});
    return std::move(result_);
  }

 private:
  std::span<float> part_of(size_t member) const {
    const GroupMember& owner = plan_.members[member];
    return values_.subspan(static_cast<size_t>(owner.begin), static_cast<size_t>(owner.count));
  }
  std::span<float> chunk_of(size_t member, size_t chunk) const {
    std::span<float> part = part_of(member);
    return part.subspan(chunk * chunk_, std::min(chunk_, part.size() - chunk * chunk_));
  }

  void reach(size_t member) {
    const GroupMember& other = plan_.members[member];
    reducers_.push_back({.member = member, .progress = now_seconds()});
    GroupLink& link = reducers_.back();
    if (options_.links != nullptr) link.connection = options_.links->take_dialed(other.peer, other.address);
    if (link.connection == nullptr) return dial(link);
    link.reused = true;
    link.connection->post_copy({.type = net::FrameType::kMessage, .context = other.send_token}, {});
    if (plan_.members[plan_.self].weight > 0) post_contributions(link);
  }

  void dial(GroupLink& link) {
    const GroupMember& other = plan_.members[link.member];
    net::Introduction self{
        .rank = plan_.members[plan_.self].peer, .purpose = kGroupPurpose, .group = other.send_token};
    auto connect = [address = other.address, ticket = ticket_, self, limit = options_.stall] {
      return net::dial(net::parse_address(address), ticket, self, Deadline::after(limit));
    };
    link.dialing = std::async(std::launch::async, connect);
  }

  void connect() {
    for (GroupLink& link : reducers_) {
      if (!link.dialing.valid() ||
          link.dialing.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
        continue;
      try {
        link.connection = link.dialing.get();
        link.progress = now_seconds();
        if (plan_.members[plan_.self].weight > 0) post_contributions(link);
      } catch (const Error& error) {
        lose(link, fmt::format("could not be reached: {}", error.what()));
      }
    }
    for (GroupLink& link : senders_) {
      if (link.connection != nullptr || link.done) continue;
      const GroupMember& from = plan_.members[link.member];
      if (begins_again(link, from.receive_token)) continue;
      link.connection = acceptor_->take_now([&](const net::Introduction& peer) {
        return peer.rank == from.peer && peer.purpose == kGroupPurpose && peer.group == from.receive_token;
      });
      if (link.connection != nullptr) link.progress = now_seconds();
    }
  }

  bool begins_again(GroupLink& link, uint64_t token) {
    if (link.kept == nullptr) return false;
    try {
      const net::FrameHeader* header = link.kept->next_header();
      if (header == nullptr) return false;
      if (header->type == net::FrameType::kMessage && header->context == token && header->length == 0 &&
          link.kept->receive({})) {
        link.connection = std::move(link.kept);
        link.progress = now_seconds();
        return true;
      }
    } catch (const Error&) {  // the other side has closed it, and dials
    }
    link.kept.reset();
    return false;
  }

  void post(GroupLink& link, uint16_t kind, size_t chunk, std::span<const float> values) {
    link.connection->post({.type = net::FrameType::kData, .channel = kind, .context = chunk},
                          std::as_bytes(values));
    result_.bytes_sent += static_cast<int64_t>(values.size_bytes());
  }

  void post_contributions(GroupLink& link) {
    const size_t chunks = chunks_of(plan_.members[link.member].count, chunk_);
    for (size_t chunk = 0; chunk < chunks; ++chunk)
      post(link, kContribution, chunk, chunk_of(link.member, chunk));
  }

  // Sends and receives what is possible; a failure of the link is the peer's.
  template <class Receive>
  void exchange(GroupLink& link, Receive&& receive) {
    if (link.connection == nullptr) return;
    try {
      link.connection->flush();
      if (!link.done) receive();
    } catch (const Error& error) {
      link.connection.reset();
      if (link.done) return;
      if (std::exchange(link.reused, false) && link.received == 0)
        return dial(link);  // closed since the last round
      lose(link, error.what());
    }
  }

  // Links on which nothing is left to come or to go.
  void keep_links() {
    for (GroupLink& link : reducers_)
      if (link.connection != nullptr && link.done && !link.connection->has_unsent())
        options_.links->keep_dialed(plan_.members[link.member].peer, plan_.members[link.member].address,
                                    std::move(link.connection));
    for (GroupLink& link : senders_)
      if (link.connection != nullptr && link.done && !part_.expects(link.member) &&
          link.posted == part_.chunks())
        options_.links->keep_accepted(plan_.members[link.member].peer, std::move(link.connection));
  }

  // The next frame into `place`; false: not complete yet.
  bool receive_chunk(GroupLink& link, uint16_t kind, std::span<float> place) {
    const net::FrameHeader* header = link.connection->next_header();
    if (header == nullptr) return false;
    if (header->type != net::FrameType::kData || header->channel != kind ||
        header->context != link.received || header->length != place.size_bytes())
      throw CommError("sent an unexpected frame (kind {}, chunk {}, {} bytes)", header->channel,
                      header->context, header->length);
    if (!link.connection->receive(std::as_writable_bytes(place))) return false;
    ++link.received;
    link.progress = now_seconds();
    link.bytes += static_cast<int64_t>(place.size_bytes());
    return true;
  }

  void receive_means(GroupLink& link) {
    const size_t chunks = chunks_of(plan_.members[link.member].count, chunk_);
    while (link.received < chunks && receive_chunk(link, kMean, chunk_of(link.member, link.received))) {
    }
    link.done = link.received == chunks;
  }

  void receive_contributions(GroupLink& link) {
    while (part_.expects(link.member) &&
           receive_chunk(link, kContribution, part_.inbox(link.member, link.received)))
      part_.arrived(link.member);
  }

  void send_means() {
    for (GroupLink& link : senders_) {
      if (link.connection == nullptr || link.done) continue;
      for (; link.posted < part_.combined(); ++link.posted)
        post(link, kMean, link.posted, part_.result(link.posted));
      exchange(link, [&] { link.done = link.posted == part_.chunks() && !link.connection->has_unsent(); });
    }
  }

  void find_stalled() {
    const double now = now_seconds();
    for (GroupLink& link : senders_) {
      const bool awaited = link.connection == nullptr || part_.expects(link.member);
      if (!link.done && awaited && now > link.progress + options_.stall) lose(link, "stalled");
    }
    for (GroupLink& link : reducers_)
      if (!link.done && !link.dialing.valid() && now > link.progress + kReducerPatience * options_.stall)
        lose(link, "returned nothing");
  }

  void lose_sender(size_t member, const std::string& why) {
    for (GroupLink& link : senders_)
      if (link.member == member) lose(link, why);
  }

  void lose(GroupLink& link, const std::string& why) {
    const bool sums = is_reducer(link);
    const std::string text =
        fmt::format("{} {}", sums ? "as a reducer it" : "as a sender it", why.substr(0, 300));
    (sums ? result_.reducers : result_.senders).push_back({plan_.members[link.member].peer, text});
    if (sums)
      result_.complete = false;
    else
      part_.give_up(link.member);
    link.done = true;
    link.connection.reset();
  }

  bool is_reducer(const GroupLink& link) const {
    return &link >= reducers_.data() && &link < reducers_.data() + reducers_.size();
  }

  bool finished() const {
    auto done = [](const GroupLink& link) { return link.done; };
    return std::all_of(reducers_.begin(), reducers_.end(), done) &&
           std::all_of(senders_.begin(), senders_.end(), done) && part_.combined() == part_.chunks();
  }

  void wait() {
    std::vector<pollfd> waits;
    bool connecting = false;
    auto add = [&](const GroupLink& link) {
      connecting = connecting || (link.connection == nullptr && !link.done);
      if (link.kept != nullptr) waits.push_back({link.kept->fd(), link.kept->poll_events(true), 0});
      if (link.connection == nullptr) return;
      const bool sums = is_reducer(link);
      const short events =
          link.connection->poll_events(/*want_read=*/sums ? !link.done : part_.expects(link.member));
      if (events != 0) waits.push_back({link.connection->fd(), events, 0});
    };
    std::for_each(reducers_.begin(), reducers_.end(), add);
    std::for_each(senders_.begin(), senders_.end(), add);
    if (!finished()) ::poll(waits.data(), waits.size(), connecting ? kConnectingPollMs : kPollMs);
  }

  const GroupPlan& plan_;
  std::span<float> values_;
  net::Acceptor* acceptor_;
  const net::JobTicket& ticket_;
  GroupOptions options_;
  size_t chunk_;
  Deadline deadline_;
  const double begun_ = now_seconds();
  GroupMemory own_memory_;
  GroupPart part_;
  std::vector<GroupLink> reducers_, senders_;
  GroupResult result_;
};

}  // namespace

GroupResult average_in_group(const GroupPlan& plan, std::span<float> values, net::Acceptor* acceptor,
                             const net::JobTicket& ticket, const GroupOptions& options) {
  YOKE_CHECK(static_cast<int64_t>(values.size()) == plan.elements, "{} values instead of {}", values.size(),
             plan.elements);
  YOKE_CHECK(!plan.sums(plan.self) || acceptor != nullptr, "a reducer without an acceptor");
  return GroupRound(plan, values, acceptor, ticket, options).run();
}

}  // namespace yoke::collab
