// Asks the dashboard's own process for something; what went wrong comes back as `error`, in words.

export async function post(path, body) {
  try {
    const answer = await fetch(path, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
    return await answer.json();
  } catch {
    return { error: "The dashboard's own process doesn't answer: is it still running?" };
  }
}
