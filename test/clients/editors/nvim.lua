-- What a person does in Neovim with a client of Pi, step by step. Run by ../editors.js with the client in the runtime
-- path; emacs.el says what its variables and its lines are.

local LONGEST = 25000
local env = vim.env
local has_agent, is_real = env.CLIENTS_AGENT == "1", env.CLIENTS_REAL == "1"

-- Steps -----------------------------------------------------------------------------------------------------------------

local function tell(name, why)
  local file = assert(io.open(env.CLIENTS_STEPS, "a"))
  file:write(vim.json.encode({ name = name, why = why }), "\n")
  file:close()
end

local function step(name, work)
  local works, why = pcall(work)
  tell(name, not works and tostring(why):gsub("^.-:%d+: ", "") or nil)
  return works
end

local function till(what, condition)
  if not vim.wait(LONGEST, condition, 20) then
    error(what .. " did not come", 0)
  end
end

local function must(condition, sentence)
  if not condition then
    error(sentence, 0)
  end
end

-- A person who reads what is told, and chooses ----------------------------------------------------------------------------

local said, wrong = {}, {}
vim.notify = function(text, level)
  said[#said + 1] = text
  if level == vim.log.levels.ERROR then
    wrong[#wrong + 1] = text
  end
end

local choice = "."
local function choose(items, label)
  for index, item in ipairs(items) do
    if label(item):find(choice, 1, true) or choice == "." then
      return item, index
    end
  end
  error("none of " .. choice .. " is offered", 0)
end
vim.ui.select = function(items, options, done)
  done(choose(items, options.format_item or tostring))
end

local Pi = require("pi")
local Sessions = require("pi.sessions.manager")
local Dialog = require("pi.ui.dialog")
Dialog.select = function(options, done)
  done((choose(options.options, tostring)))
end
Pi.setup({ cli = { bin = env.CLIENTS_COMMAND } })

local function session()
  return assert(Sessions.get(), "there is no session")
end

local function text()
  local buffer = session().chat._history:buf()
  return table.concat(vim.api.nvim_buf_get_lines(buffer, 0, -1, false), "\n")
end

local function shows(part)
  return text():find(part, 1, true) ~= nil
end

local function heard(part)
  for _, one in ipairs(said) do
    if one:find(part, 1, true) then
      return true
    end
  end
  return false
end

--- Asks as the client does, by the way that its own parts use.
local function ask(command)
  local reply
  session().rpc:send(command, function(message)
    reply = message
  end)
  till("the reply to " .. command.type, function()
    return reply ~= nil
  end)
  must(reply.success, reply.error or command.type)
  return reply.data
end

local function state()
  return ask({ type = "get_state" })
end

local function write(words)
  vim.api.nvim_buf_set_lines(session().chat:prompt_buf(), 0, -1, false, { words })
end

local function prompt(words, answer)
  write(words)
  session().chat:submit()
  till("the answer to " .. words, function()
    return shows(answer)
  end)
  till("the end of the turn", function()
    return not session().chat:is_streaming()
  end)
end

--- What an agent says to words that mean nothing to it.
local function echo(words)
  return (is_real and "Heard: " or "You said: ") .. words
end

-- A session, as a person goes through it ----------------------------------------------------------------------------------

local first

local begun = step("start", function()
  Pi.show()
  till("a process", function()
    return session().rpc:is_running()
  end)
  local told = state()
  first = told.sessionFile
  must(type(told.sessionId) == "string", "no session id")
  must(type(told.model) == "table", "no model")
end)

local function go_on()
  if has_agent then
    step("its version is one that the client knows", function()
      local Compat = require("pi.compat")
      local version = Compat.extract_version(vim.fn.system({ env.CLIENTS_COMMAND, "--version" })) or "none"
      must((Compat.compare_versions(version, Compat.min_supported) or -1) >= 0, "the client is for later ones than " .. version)
    end)
    step("prompt", function()
      prompt("hello there", echo("hello there"))
    end)
    step("tool call", function()
      prompt(env.CLIENTS_TOOL, echo(env.CLIENTS_TOOL))
      must(shows("read"), "no call is shown")
    end)
    step("abort", function()
      write(env.CLIENTS_SLOW)
      session().chat:submit()
      till("the first piece", function()
        return shows("0 1 2 ")
      end)
      Pi.abort()
      till("the end of the turn", function()
        return not session().chat:is_streaming()
      end)
      must(shows("Aborted"), "it is not shown as aborted")
    end)
    step("steering", function()
      write(env.CLIENTS_SLOW)
      session().chat:submit()
      till("the turn", function()
        return session().chat:is_streaming()
      end)
      write("turn left")
      session().chat:submit()
      must(state().isStreaming, "it does not stream")
      Pi.abort()
      till("the end of the turn", function()
        return not session().chat:is_streaming()
      end)
    end)
  else
    step("a prompt is refused with a sentence", function()
      write("hello")
      session().chat:submit()
      till("a notice", function()
        return heard("no model")
      end)
      must(not session().chat:is_streaming(), "it is at work")
    end)
  end
  step("list of models, and another one", function()
    local before = state().model
    choice = has_agent and (is_real and "stub-2" or "scripted-2") or "."
    Pi.select_model_all()
    if has_agent then
      till("another model", function()
        return state().model.id ~= before.id
      end)
    else
      vim.wait(200)
    end
    choice = "."
  end)
  if has_agent then
    step("next model", function()
      local before = state().model
      Pi.cycle_model()
      till("another model", function()
        return heard("cycle model") or state().model.id ~= before.id
      end)
      must(not heard("cycle model"), said[#said])
    end)
  end
  step("name", function()
    Pi.set_session_name("A name")
    till("the name", function()
      return heard("Session name set: A name")
    end)
    must(state().sessionName == "A name", "another name")
  end)
  step("new session", function()
    local before = state().sessionId
    Pi.new_session()
    till("it", function()
      return state().sessionId ~= before
    end)
    till("an empty history", function()
      return not shows("hello there")
    end)
    if has_agent then
      prompt("in a new session", echo("in a new session"))
    end
  end)
  step("switch, to a session of another day", function()
    choice = env.CLIENTS_PAST
    Pi.resume_session()
    till("the history", function()
      return shows("an old answer")
    end)
    must(shows("long ago"), "the question is not shown")
    if has_agent then
      prompt("and again", echo("and again"))
    end
  end)
  if has_agent then
    step("switch back", function()
      choice = "A name"
      Pi.resume_session()
      till("the history", function()
        return shows("hello there")
      end)
      must(state().sessionFile == first, "another session")
      prompt("back again", echo("back again"))
    end)
  end
  if is_real then
    step("compact", function()
      local before = #wrong
      Pi.compact()
      till("the end of it", function()
        return not session().chat:is_compacting()
      end)
      -- Pi itself has nothing to summarise in short sessions.
      while #wrong > before do
        local why = table.remove(wrong)
        must(why:find("othing to compact") or why:find("lready compacted") or why:find("too small"), why)
      end
    end)
  end
  step("switch, in another process", function()
    choice = has_agent and "A name" or env.CLIENTS_PAST
    Pi.stop()
    Pi.resume_session()
    till("the history", function()
      return Sessions.get() and shows(has_agent and "hello there" or "an old answer")
    end)
    if has_agent then
      prompt("from another process", echo("from another process"))
    end
  end)
  step("the last session, in another process", function()
    Pi.stop()
    Pi.continue_session()
    -- Which one is the last is told by the second in which it was written to.
    till("the history", function()
      return Sessions.get() and (shows("hello there") or shows("in a new session") or shows("long ago"))
    end)
  end)
  step("nothing is shown as wrong", function()
    must(#wrong == 0, wrong[1])
    must(#session().system_errors == 0, (session().system_errors[1] or {}).message)
  end)
  step("stop", function()
    local job = session().rpc._job_id
    Pi.stop()
    must(vim.fn.jobwait({ job }, LONGEST)[1] ~= -1, "the process lives")
  end)
end

if begun then
  go_on()
end
vim.cmd("qa!")
