#pragma once

// The control socket: lines of JSON from any number of clients, each answered in order. It has a thread of
// its own, which never touches an object of ns-3: it hands each line to the simulator as an event.

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace peerloom
{

class ControlSocket
{
  public:
    // From a line to its answer; called in the simulator's thread.
    using Answerer = std::function<std::string(const std::string& line)>;

    // Listens at the path. Throws BadOption when that can't be, or another program answers there. The signals
    // in `signalDescriptor` (a signalfd) end the simulation.
    ControlSocket(const std::string& path, int signalDescriptor, Answerer answerer);
    // Closes all connections and removes the socket.
    ~ControlSocket();

    ControlSocket(const ControlSocket&) = delete;
    ControlSocket& operator=(const ControlSocket&) = delete;

    // Starts to serve.
    void Start();

  private:
    struct Client
    {
        int descriptor;
        std::string input{};
        std::string output{};
        uint32_t unanswered = 0;
        bool ended = false;  // it sends nothing more
        bool broken = false; // it can't be answered any more
    };

    void Serve();
    // False when it's time to end.
    bool ServeOnce();
    void Accept();
    void Read(Client& client);
    void Submit(uint64_t id, Client& client);
    void CollectReplies();
    static void Write(Client& client);
    void DropFinished();

    std::string m_path;
    int m_signals;
    int m_listener;
    int m_wake; // an eventfd: there are replies, or it's time to end
    Answerer m_answerer;
    std::map<uint64_t, Client> m_clients; // by an id that is never used again, as descriptors are
    uint64_t m_nextId = 0;
    std::mutex m_mutex;
    std::vector<std::pair<uint64_t, std::string>> m_replies; // guarded by m_mutex
    bool m_stop = false;                                     // guarded by m_mutex
    std::thread m_thread;
};

} // namespace peerloom
