"""The words of `paper.pdf`. The river, the people, the numbers and the references are invented."""

TITLE = "Reading the Staff: Forecasting a Small River with Paint, Paper and a Rain Gauge"
TITLE_SET = TITLE.replace(" with", "<br/>with")
AUTHORS = "Mara Hollins, Teodor Vik, Ines Carvalho-Reed"
AFFILIATION = "Arlen Valley River Group, Hollow Bridge"
SERIES = "AVRG Working Paper 12"
SHORT_AUTHORS = "Hollins, Vik and Carvalho-Reed"

ABSTRACT = (
    "Small rivers rise quickly, and the people beside them seldom have more than a painted staff in the water and a "
    "rain gauge in the garden. We asked how far ahead the level of such a river can be told with these two "
    "instruments alone. Volunteers read three gauges on the River Arlen twice a day for two winters, and a sum of six "
    "terms, worked out by hand, turned each reading into a forecast. Twelve hours ahead its mean error was 5.2 cm, "
    "against 9.6\u00a0cm for the rule that nothing changes, and it gave warning in time for 16 of 19 floods. We "
    "describe the method, its failures, and what it takes to keep it going."
)

INTRODUCTION = (
    "Large rivers are watched by large offices. Their levels are measured every quarter of an hour, sent by radio, "
    "and fed to models that know the shape of every reach. Small rivers have no such attendance. The Arlen is 23 km "
    "long, drains 62 km\u00b2 of moor and pasture above the village of Hollow Bridge, and covers the village quay "
    "nine or ten times in a wet winter. Until this study its only record was a column of marks that generations of "
    "millers had cut into the door of the weir house [4].",
    "A gauge that reports by radio would of course be welcome. It would also cost more each year than the parish "
    "spends on its roads, and it would still need someone to clear weed from the sensor. We therefore turned the "
    "question round. Instead of asking which instrument the village should buy, we asked how much can be had from the "
    "instruments that it already owns: three painted staffs, one rain gauge, and people who walk past them anyway. "
    "Three requirements were agreed at a meeting in the school before the first reading was taken:",
)
REQUIREMENTS = (
    "A forecast must be worked out on paper in less than five minutes.",
    "It must look at least twelve hours ahead, because that is what farmers need to bring cattle up from the water "
    "meadows.",
    "Anyone who can read a ruler must be able to take over without a lesson.",
)
INTRODUCTION_END = (
    "The rest of this paper says how the forecast is made, how often it was right, and, at some length, how often it "
    "was wrong.<super rise=3.4 size=6.8>1</super>"
)
FOOTNOTE = (
    "<super rise=2.6 size=6>1</super> The Arlen, its gauges and every number in this paper are invented. The paper "
    "was written as an example document."
)

RIVER = (
    "The Arlen rises in a shallow lake, the Upper Tarn, at 486\u00a0m above the sea. For its first eleven kilometres "
    "it is a moorland stream in a bed of gravel; below the mill it slows, meanders between banks of clay (Figure 1), "
    "and reaches Hollow Bridge after another twelve. Rain on the moor takes about nine hours to arrive at the bridge "
    "when the ground is wet, and up to twenty when it is dry. That delay is the whole reason why a forecast without a "
    "computer is possible at all.",
    "Gauges stand at three places (Table 1). Each is a board of oak, painted in alternating bands of two centimetres "
    "and levelled against the threshold of the nearest building, so that a staff that is knocked over by driftwood "
    "can be put back at the same height. The boards were read at seven in the morning and seven in the evening from "
    "October to March in two successive winters. Of 2,184 possible readings 2,128 were made, or 97.4 per cent; the "
    "longest gap, at the Upper Tarn, was five days of drifting snow. Two people who read the same board at the same "
    "time differ by about a centimetre [2], which sets a floor to everything that follows.",
)
FIGURE_1 = "Figure 1: The lower Arlen on an evening in October, looking upstream from Hollow Bridge towards the moor."
TABLE_1 = "Table 1: The three gauges, the readings made there, and the mean and highest levels seen in two winters."
TABLE_1_ROWS = (
    ("Gauge", "Area (km\u00b2)", "Readings", "Mean (m)", "High (m)"),
    ("Upper Tarn", "14", "694", "0.41", "1.12"),
    ("Mill Weir", "39", "711", "0.63", "1.87"),
    ("Hollow Bridge", "62", "723", "0.88", "2.64"),
)

FORECAST = (
    "Let <i>h</i><sub rise=2 size=7>0</sub> be the level just read at Hollow Bridge, <i>h</i><sub rise=2 "
    "size=7>1</sub> the level read twelve hours before it, and <i>r</i><sub rise=2 size=7>1</sub> to <i>r</i><sub "
    "rise=2 size=7>4</sub> the rain of the last four blocks of six hours, the newest first. The level expected "
    "<i>k</i> hours ahead is then the sum"
)
FORECAST_AFTER = (
    "in which levels are in centimetres and rain is in millimetres. The weights <i>a</i> and <i>b</i> depend on the "
    "number of hours ahead. They were found once, by least squares, from the readings of the first winter, and "
    "rounded so that they can be multiplied in the head. For twelve hours ahead the four weights of the rain are 0.2, "
    "0.6, 0.5 and 0.1: the second and third blocks count most, because their water is just then arriving. The weight "
    "of the trend is 0.3.",
    "No use is made of the season, the temperature, or the two upper gauges. We tried all three; none changed the "
    "errors of the second winter by more than half a centimetre, and each would have broken our first requirement.",
)
ROUTINE = (
    "The work is divided among eleven volunteers, who take turns by the week and keep their notes in one book [1]. "
    "The person on duty does four things:"
)
ROUTINE_STEPS = (
    "Read the staff at the bridge to the nearest centimetre and write the level in the notebook, with the time.",
    "Empty the rain gauge and enter the rain of the last two blocks below the level.",
    "Multiply the four amounts of rain by the printed weights, add the trend, and add the sum to the level.",
    "Chalk the result on the board at the bridge, and telephone the three farms if it exceeds 1.80 m.",
)
ROUTINE_END = (
    "The whole takes four minutes on a dry evening. The arithmetic of every forecast was checked afterwards: 31 of "
    "723 held a slip, and only two of these slips were larger than ten centimetres."
)
ERRORS = (
    "Two simpler rules serve as a yardstick. The first, <i>no change</i>, says that the level will stay where it is. "
    "The second, <i>last trend</i>, says that it will go on rising or falling as it did between the last two "
    "readings. An error is the absolute difference between the level that was forecast and the level that was then "
    "read. A flood is any spell above 1.80 m, at which the lowest step of the quay is under water; there were 19 of "
    "them in the two winters. Errors are given for the second winter only, whose readings had no part in finding the "
    "weights."
)

LEVELS = (
    "The second winter as a whole is drawn in Figure 2. Five spells of high water stand out, all of them at the three "
    "gauges together, and the crests at the bridge are both higher and broader than those at the tarn. Between spells "
    "the level returned to its usual height within four or five days.",
    "Figure 3 shows ten days of the same winter, in January. The rain of the third day reached the bridge on the "
    "fourth; the forecast that had been made twelve hours earlier stayed a little below the crest. On the falling "
    "side the two lines are hardly to be told apart, since a river that is draining does so very evenly.",
)
FIGURE_2 = (
    "Figure 2: Levels at the three gauges from October to March of the second winter. The dashed line marks 1.80 m, "
    "at which the quay at Hollow Bridge is under water."
)
FIGURE_3 = "Figure 3: Level at Hollow Bridge over ten days in January: as read, and as forecast twelve hours earlier."
ERROR_SIZES = (
    "Table 2 compares the rules. Twelve hours ahead the forecast is nearly twice as good as either yardstick. Its "
    "advantage shrinks with time, for rain that has not yet fallen cannot be counted, and at two days it is only a "
    "little better than to say that nothing changes. The last trend is the worst guide of all beyond half a day: "
    "rivers that rise do not rise for ever.",
)
TABLE_2 = "Table 2: Mean error at Hollow Bridge in centimetres, by rule and by hours ahead, in the second winter."
TABLE_2_ROWS = (
    ("Hours ahead", "No change", "Last trend", "Forecast"),
    ("12", "9.6", "8.9", "5.2"),
    ("24", "16.8", "20.3", "9.9"),
    ("36", "20.4", "31.7", "15.1"),
    ("48", "22.9", "43.2", "19.6"),
)
WARNINGS = (
    "For the farms the size of an error matters less than whether the telephone rings in time. Figure 4 counts the "
    "warnings of both winters. The forecast announced 16 floods out of 19 at least twelve hours before the quay was "
    "covered, the last trend 11, and no change 6. It rang in vain four times. Two of the three floods that it missed "
    "came from snow that melted without any rain, a case that Equation (1) cannot see; the third came from a fallen "
    "tree that held the water back at the mill and then let it go at once."
)
FIGURE_4 = "Figure 4: Warnings for 19 floods: given in time, missed, and given in vain."

DISCUSSION = (
    "Why does so little work so well? The answer lies in the delay. Water that will pass the bridge tomorrow morning "
    "has, for the greater part, already fallen tonight, and a rain gauge sees it. One gauge in one garden stands for "
    "the whole moor better than might be feared, because winter rain comes in broad fronts [3]. A longer view would "
    "need a forecast of the rain itself, which a village cannot make but can hear on the radio; whether entering that "
    "figure as a fifth block would help is the question of the coming winter.",
    "The habit proved more fragile than the sum. Readings were lost less to storms than to holidays, and the notebook "
    "of one week fell into the river that it described. What kept the record whole was the board. People who passed "
    "the bridge asked after a missing figure, and it was usually supplied within the day. We have come to think that "
    "the public board is as much a part of the instrument as the staff.",
    "Costs were small. Paint, chalk, three boards and a second rain gauge came to 212 pounds in two years, which is "
    "less than a thirtieth of what one gauge with a radio would have cost in the same time.",
    "Two limits should be kept in mind. The weights belong to this river and would have to be found anew for any "
    "other, which takes one winter of readings. And the largest flood in our record, 2.64 m, is well below the mark "
    "of 3.10\u00a0m on the door of the weir house, so nothing here shows how the sum behaves in a really great flood.",
)
CONCLUSION = (
    "A painted staff, a rain gauge and a sum of six terms gave a useful forecast of a small river twelve hours ahead, "
    "at the price of four minutes twice a day. The method asks for no electricity, no licence and no training, and it "
    "fails in ways that can be understood. We would be glad to see it tried on a river with less clay and more snow.",
)
THANKS = (
    "We thank the eleven readers of the gauges, the school for its blackboard, and the three farms for answering the "
    "telephone at all hours."
)
REFERENCES = (
    "M. Hollins. <i>The Notebooks of Hollow Bridge.</i> Arlen Valley River Group, Report 3.",
    "T. Vik and P. Sorrel. Ten people at one staff: how well do readers agree? Arlen Valley River Group, Report 7.",
    "I. Carvalho-Reed. Rain in the garden: six gauges and one hedge. <i>Upland Weather Notes</i> 12, pages 41\u201348.",
    "<i>The Millers\u2019 Door: Marks of High Water at the Weir House.</i> Hollow Bridge Parish Archive, folder 22.",
)
