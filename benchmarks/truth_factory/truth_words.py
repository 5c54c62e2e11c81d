"""Write seeded text: English sentences from a fixed vocabulary, and sequences of words of other languages."""

import random

_WORDS = {
    "nouns": """account analysis archive author basin bridge budget building candle capital catalog cell channel
        chapter circuit city climate coast column committee contract copper council crystal current
        cycle decade deposit desert detail diagram distance district drawing economy editor engine
        engineer error estimate evidence factory farmer field filter forest formula fraction garden
        glacier graph harbor harvest history hospital index industry inspector island journal
        kitchen laboratory ladder language lantern library liquid machine magnet manuscript map
        margin market measurement member memory metal method mineral mirror model morning motor
        mountain museum network notebook observer office orchard organ painter paper parameter
        passage pattern period physician pipeline planet platform pressure printer problem process
        product professor program protein province quality quarter railway rainfall reactor reader
        record region report reservoir resistance river route sailor sample satellite school season
        sensor sequence settlement signal solution spectrum station steam storage stream structure
        student summary surface survey system teacher temperature theater theory tower traffic
        translation treaty turbine valley variable vessel village volume voltage weather window
        winter workshop""",
    "verbs": """accepts adjusts answers approaches balances becomes carries changes checks collects compares
        completes confirms connects contains controls covers crosses defines delays describes
        determines divides doubles explains extends follows generates improves includes increases
        introduces joins limits measures mentions moves observes predicts prepares protects reaches
        records reduces reflects rejects repeats replaces represents requires restores separates
        shows stores supports surrounds transports""",
    "adjectives": """annual average careful central certain cold common complete complex continuous correct current deep
        different direct eastern electrical empty entire essential exact experimental familiar final
        foreign formal former general gradual heavy horizontal important independent internal large
        later linear local long lower mechanical modern moderate narrow natural new northern
        numerical old open ordinary original parallel permanent physical possible practical previous
        public quiet rapid regular relative residual rural separate several simple small southern
        special stable statistical steady sudden technical thermal typical uniform upper urban
        vertical western wide""",
    "prepositions": """above across after against along among around before behind below between beyond during near""",
    "links": """although because while whereas since unless until when""",
}
NOUNS, VERBS, ADJECTIVES, PREPOSITIONS, LINKS = (words.split() for words in _WORDS.values())

#: Words of languages apart from English; each list is a vocabulary, and its sentences have no grammar.
LANGUAGES = {
    "German": """Straße größer Übung für müssen zwischen Häuser können während schließlich Gebäude Änderung der und
        nicht Geschichte Fluß Mädchen Wörter ähnlich möglich früher später öffnen Brücke Küche
        Gespräch Frühling Lösung""",
    "French": """élève français où déjà forêt château être très été après première façon naïve cœur œuvre garçon
        hôpital dîner théâtre lumière problème voilà leçon république connaître bientôt légère mère""",
    "Polish": """żółty źródło łódź książka ćwiczenie piękny święto między więc dążyć góra śnieg wąż mówić również
        powietrze rzeka światło przyszłość działanie człowiek kość mgła sąsiad życie""",
    "Czech": """příliš žluťoučký kůň úpěl ďábelské ódy řeka město člověk říjen čtvrtek šťastný věc země škola světlo
        měsíc původní dějiny většina současný účet týden""",
    "Turkish": """güneş çocuk ağaç şehir ışık öğrenci yıldız kırmızı değil büyük küçük dağ göl düşünce çalışma kitabı
        gündüz sığınak içinde üzerinde""",
    "Greek": """και θάλασσα άνθρωπος λόγος χρόνος ήλιος δρόμος πόλη βιβλίο γλώσσα νερό σπίτι ημέρα νύχτα ιστορία
        μέτρηση σύστημα ενέργεια μεγάλος μικρός είναι από προς μετά πριν""",
    "Cyrillic": """и река город человек время книга слово вода земля свет школа история измерение система энергия
        большой маленький новый старый через между после перед дорога объект съезд ёлка""",
    "Hebrew": """ספר עיר אדם זמן שפה מים בית יום לילה דרך אור ארץ גדול קטן חדש ישן אחרי לפני בין מעל תחת מערכת מדידה
        תלמיד מורה""",
    "Arabic": """كتاب مدينة إنسان وقت لغة ماء بيت يوم ليل طريق ضوء أرض كبير صغير جديد قديم بعد قبل بين فوق تحت نظام
        قياس طالب معلم""",
}
VOCABULARIES = {language: words.split() for language, words in LANGUAGES.items()}
RIGHT_TO_LEFT = {"Hebrew", "Arabic"}


def title(rng: random.Random, language: str = "English") -> str:
    """Return 2 to 6 words, the first one capitalized."""
    if language != "English":
        words = rng.choices(VOCABULARIES[language], k=rng.randint(3, 5))
    else:
        words = [rng.choice(ADJECTIVES), rng.choice(NOUNS)]
        words += rng.choice([[], ["and", rng.choice(NOUNS)], [rng.choice(["of", "for", "under", "in"]), *_phrase(rng)]])
    text = " ".join(words)
    return text[0].upper() + text[1:]


def sentence(rng: random.Random, language: str = "English") -> str:
    if language != "English":
        words = rng.choices(VOCABULARIES[language], k=rng.randint(6, 14))
        text = " ".join(words)
    else:
        text = _clause(rng)
        chance = rng.random()
        if chance < 0.3:
            text += f" {rng.choice(LINKS)} {_clause(rng)}"
        elif chance < 0.45:
            text += f", and {_clause(rng)}"
        text += rng.choice(["", "", "", "", *_ADDITIONS]).format(
            year=rng.randint(1850, 2024), n=rng.randint(2, 60), x=rng.randint(11, 999) / 10, noun=rng.choice(NOUNS)
        )
    return text[0].upper() + text[1:] + "."


_ADDITIONS = (
    " in {year}",
    " [{n}]",
    " (see Section {n})",
    ", about {x} % of it",
    " – a “{noun}”",
    " (e.g. the {noun})",
)


def _phrase(rng: random.Random) -> list[str]:
    adjective = [rng.choice(ADJECTIVES)] if rng.random() < 0.5 else []
    return [rng.choice(["the", "the", "each", "every", "this"]), *adjective, rng.choice(NOUNS)]


def _clause(rng: random.Random) -> str:
    place = [rng.choice(PREPOSITIONS), *_phrase(rng)] if rng.random() < 0.5 else []
    return " ".join([*_phrase(rng), rng.choice(VERBS), *_phrase(rng), *place])
