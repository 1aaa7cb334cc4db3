#include "control.h"

#include "options.h"

#include "ns3/simulator.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace peerloom
{

namespace
{

constexpr size_t kMaximumLine = 64 << 10;
constexpr size_t kMaximumOutput = 16 << 20;
constexpr uint32_t kMaximumUnanswered = 64;
constexpr size_t kMaximumClients = 64;

[[noreturn]] void
Refuse(const std::string& path, const std::string& reason)
{
    throw BadOption("--control=" + path + ": " + reason);
}

bool
SomebodyAnswers(const sockaddr_un& address)
{
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool answers = connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    close(probe);
    return answers;
}

int
Listen(const std::string& path)
{
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path)
    {
        Refuse(path, "allowed are paths of up to " + std::to_string(sizeof address.sun_path - 1) + " bytes");
    }
    std::memcpy(address.sun_path, path.c_str(), path.size());
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const auto* generic = reinterpret_cast<const sockaddr*>(&address);
    int bound = bind(listener, generic, sizeof address);
    if (bound != 0 && errno == EADDRINUSE)
    {
        if (SomebodyAnswers(address))
        {
            Refuse(path, "another program answers there; take another path");
        }
        // Left behind by a program that was killed.
        unlink(path.c_str());
        bound = bind(listener, generic, sizeof address);
    }
    if (bound != 0 || listen(listener, 16) != 0)
    {
        Refuse(path, std::string("can't listen there (") + std::strerror(errno) + ")");
    }
    return listener;
}

} // namespace

ControlSocket::ControlSocket(const std::string& path, int signalDescriptor, Answerer answerer)
    : m_path(path),
      m_signals(signalDescriptor),
      m_listener(Listen(path)),
      m_wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      m_answerer(std::move(answerer))
{
}

ControlSocket::~ControlSocket()
{
    {
        std::lock_guard lock(m_mutex);
        m_stop = true;
    }
    eventfd_write(m_wake, 1);
    if (m_thread.joinable())
    {
        m_thread.join();
    }
    for (auto& [id, client] : m_clients)
    {
        close(client.descriptor);
    }
    close(m_listener);
    close(m_wake);
    unlink(m_path.c_str());
}

void
ControlSocket::Start()
{
    m_thread = std::thread(&ControlSocket::Serve, this);
}

void
ControlSocket::Serve()
{
    while (ServeOnce())
    {
    }
}

bool
ControlSocket::ServeOnce()
{
    std::vector<pollfd> polled{{m_wake, POLLIN, 0}, {m_signals, POLLIN, 0}, {m_listener, POLLIN, 0}};
    for (const auto& [id, client] : m_clients)
    {
        bool hears = !client.ended && client.unanswered < kMaximumUnanswered;
        int events = (hears ? POLLIN : 0) | (client.output.empty() ? 0 : POLLOUT);
        polled.push_back({client.descriptor, static_cast<short>(events), 0});
    }
    poll(polled.data(), polled.size(), -1);
    size_t at = 3;
    for (auto& [id, client] : m_clients)
    {
        short happened = polled[at++].revents;
        client.broken = client.broken || (happened & POLLERR) != 0;
        if (happened & (POLLIN | POLLHUP))
        {
            Read(client);
        }
    }
    CollectReplies();
    for (auto& [id, client] : m_clients)
    {
        Submit(id, client);
        Write(client);
    }
    DropFinished();
    if (polled[1].revents & POLLIN)
    {
        signalfd_siginfo signal;
        while (read(m_signals, &signal, sizeof signal) > 0)
        {
        }
        ns3::Simulator::ScheduleWithContext(0, ns3::Seconds(0), [] { ns3::Simulator::Stop(); });
    }
    if (polled[2].revents & POLLIN)
    {
        Accept();
    }
    std::lock_guard lock(m_mutex);
    return !m_stop;
}

void
ControlSocket::Accept()
{
    int descriptor = accept4(m_listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (descriptor >= 0 && m_clients.size() >= kMaximumClients)
    {
        close(descriptor);
    }
    else if (descriptor >= 0)
    {
        m_clients.emplace(m_nextId++, Client{descriptor});
    }
}

void
ControlSocket::Read(Client& client)
{
    char buffer[16 << 10];
    ssize_t count = recv(client.descriptor, buffer, sizeof buffer, 0);
    if (count > 0)
    {
        client.input.append(buffer, count);
    }
    else if (count == 0 || (errno != EAGAIN && errno != EINTR))
    {
        client.ended = true;
    }
}

void
ControlSocket::Submit(uint64_t id, Client& client)
{
    size_t begin = 0;
    size_t end;
    while (client.unanswered < kMaximumUnanswered &&
           (end = client.input.find('\n', begin)) != std::string::npos)
    {
        std::string line = client.input.substr(begin, end - begin);
        begin = end + 1;
        ++client.unanswered;
        ns3::Simulator::ScheduleWithContext(0, ns3::Seconds(0), [this, id, line] {
            std::string answer = m_answerer(line);
            std::lock_guard lock(m_mutex);
            m_replies.emplace_back(id, std::move(answer));
            eventfd_write(m_wake, 1);
        });
    }
    client.input.erase(0, begin);
    if (client.input.size() > kMaximumLine && client.input.find('\n') == std::string::npos)
    {
        client.output += "{\"ok\":false,\"error\":\"a line is longer than 64 KiB\"}\n";
        client.input.clear();
        client.ended = true;
    }
}

void
ControlSocket::CollectReplies()
{
    eventfd_t woken;
    eventfd_read(m_wake, &woken);
    std::vector<std::pair<uint64_t, std::string>> replies;
    {
        std::lock_guard lock(m_mutex);
        replies.swap(m_replies);
    }
    for (auto& [id, line] : replies)
    {
        auto found = m_clients.find(id);
        if (found != m_clients.end())
        {
            --found->second.unanswered;
            found->second.output += line + "\n";
        }
    }
}

void
ControlSocket::Write(Client& client)
{
    if (client.output.empty())
    {
        return;
    }
    ssize_t count = send(client.descriptor, client.output.data(), client.output.size(), MSG_NOSIGNAL);
    if (count > 0)
    {
        client.output.erase(0, count);
    }
    bool gone = count < 0 && errno != EAGAIN && errno != EINTR;
    client.broken = client.broken || gone || client.output.size() > kMaximumOutput;
}

void
ControlSocket::DropFinished()
{
    for (auto each = m_clients.begin(); each != m_clients.end();)
    {
        const Client& client = each->second;
        bool done = client.ended && client.unanswered == 0 && client.output.empty() &&
                    client.input.find('\n') == std::string::npos;
        if (client.broken || done)
        {
            close(client.descriptor);
            each = m_clients.erase(each);
        }
        else
        {
            ++each;
        }
    }
}

} // namespace peerloom
